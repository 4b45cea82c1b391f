"""From desired and observed state to orders: `reconciler.Reconciler`. Imported by the core and what decides."""
