# A command that runs `count` processes of slurmd on one machine. Each of them is a node in SLURM. All of them get the command's
# arguments, of which --conf must be the last. The command starts each slurmd that ends again. When it gets SIGTERM, it ends all
# of them. Jobs continue, as with a single slurmd.
{
  count,
  lib,
  pkgs,
  slurmd,
}:
let
  base = 7000; # the first slurmd listens on the port after this one
in
{
  ports = {
    from = base + 1;
    to = base + count;
  };
  start = pkgs.writeShellScript "nixbench-hollow-slurmd" ''
    PATH=${lib.makeBinPath [ pkgs.coreutils ]}:$PATH
    machine=$(uname -n)
    machine=''${machine%%.*}
    arguments=()
    parameters=
    while [ $# -gt 0 ]; do
      if [ "$1" = --conf ]; then parameters=$2; shift; else arguments+=("$1"); fi
      shift
    done

    declare -A number_of
    stopping=
    # SIGTERM may arrive between any two commands; also then, the slurmd that was started last must end.
    start() {
      [ -z "$stopping" ] || return
      ${slurmd} -D -N "$machine-h$1" "''${arguments[@]}" --conf "$parameters Port=$((${toString base} + $1))" &
      number_of[$!]=$1
      [ -z "$stopping" ] || kill $! 2> /dev/null
    }
    stop() {
      stopping=1
      kill "''${!number_of[@]}" 2> /dev/null
    }
    trap stop TERM INT

    for number in $(seq ${toString count}); do
      start "$number"
      # Wait a second after each twenty nodes, because the controller adds one node after the other.
      [ $((number % 20)) != 0 ] || sleep 1
      [ -z "$stopping" ] || break
    done
    while [ -z "$stopping" ]; do
      # Look at all children, because bash reports only some of several children that end at once.
      ended=()
      for child in "''${!number_of[@]}"; do
        kill -0 "$child" 2> /dev/null && continue
        ended+=("''${number_of[$child]}")
        unset "number_of[$child]"
      done
      if [ ''${#ended[@]} = 0 ]; then
        wait -n
        continue
      fi
      for number in "''${ended[@]}"; do
        echo "slurmd of $machine-h$number has ended; it starts again" >&2
      done
      sleep 1
      for number in "''${ended[@]}"; do start "$number"; done
    done
    wait
  '';
}
