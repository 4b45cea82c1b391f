"""Types of environment for Trimtab: `render` for jobs that can wait a while, `session` for web applications whose users
stay with one instance."""
