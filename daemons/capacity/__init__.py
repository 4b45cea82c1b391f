"""Questions about capacity answered without a cluster: placement, dilation, assurance, provisioning, coordination,
advice. Imported by `trimtab sim`, `trimtab env` and the portal."""
