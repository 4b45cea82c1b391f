"""Which coordination model an owner's load asks for: `advise.advise`."""
