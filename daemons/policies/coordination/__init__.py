"""Pure: how many units each environment has. `bounds` has the policies of phoenixcloud.txt section 5, `baselines` what
they are compared with; `granting` shares the provider's units between groups by
`matching`; `victims` says which jobs give way, `pairing` who may share, `feasibility` which bounds can be kept."""
