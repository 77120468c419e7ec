# shellcheck shell=sh disable=SC2034
# Additional packages of machines that can be nodes of a SLURM cluster.

packages="$packages
  slurmctld slurmd sackd slurm-client slurm-wlm-basic-plugins munge
  slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core
"
