"""Every code that Trimtab prints, in one place: what it means and what to do. Plain values; nothing here does I/O."""
