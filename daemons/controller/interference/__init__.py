"""Domain: how jobs load nodes, learnt from reports and standard jobs. Imported by the core, requests and views."""
