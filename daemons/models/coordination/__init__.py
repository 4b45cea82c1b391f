"""How units are shared among environments: pairing, feasibility, granting, matching. Pure. Imported by policies
and the controller."""
