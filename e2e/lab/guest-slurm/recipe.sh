# shellcheck shell=sh disable=SC2034
# Additional packages of machines that can be nodes of a SLURM cluster. As on NixOS, such a machine resolves its own name
# (libnss-myhostname): slurmctld waits for ten seconds after a job of srun if it cannot resolve the name of srun's machine.

packages="$packages
  libnss-myhostname
  slurmctld slurmd sackd slurm-client slurm-wlm-basic-plugins munge
  slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core
"
