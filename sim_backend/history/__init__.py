"""What would have been: spans of the recorded history simulated again, as they were and with other policies."""
