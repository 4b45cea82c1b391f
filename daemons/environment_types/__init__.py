"""Pure: the types of environments that come with Trimtab, found like all others by entry point (phoenixcloud.txt
section 4.3, figure 5). Each has a manager, a scheduler, and for web applications a way to adjust instances and to
distribute requests."""
