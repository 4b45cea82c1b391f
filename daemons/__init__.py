"""The centre: measures, decides and converges the cluster on the decision."""
