"""Pure: how many units each environment has. `bounds` has the policies of phoenixcloud.txt section 5, `baselines` what
they are compared with; `granting` shares the provider's nodes between groups."""
