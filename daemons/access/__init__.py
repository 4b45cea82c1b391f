"""Who an account is and on whose behalf it speaks: roles, delegation. Imported by the controller and its clients."""
