"""Domain: web applications, their measured load, replicas, load balancing and health. Imported by the core,
requests and views."""
