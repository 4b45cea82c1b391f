"""Pure: how many units each environment has. `bounds` has the policies of phoenixcloud.txt section 5, `baselines` what
they are compared with. How units are granted and who may share is in `daemons.models.coordination`."""
