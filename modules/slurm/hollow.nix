# A command that runs `count` slurmd, which are nodes of their own. Its arguments are those of all slurmd; an
# argument --conf is last. It starts a slurmd again that ends, and ends all of them when it gets SIGTERM. Jobs continue, as with one slurmd.
{
  count,
  lib,
  pkgs,
  slurmd,
}:
let
  base = 7000; # the first slurmd listens at the next port
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
    start() {
      ${slurmd} -D -N "$machine-h$1" "''${arguments[@]}" --conf "$parameters Port=$((${toString base} + $1))" &
      number_of[$!]=$1
    }
    stop() {
      stopping=1
      kill "''${!number_of[@]}" 2> /dev/null
    }
    trap stop TERM INT

    for number in $(seq ${toString count}); do
      start "$number"
      # The controller adds one node after the other.
      [ $((number % 20)) != 0 ] || sleep 1
      [ -z "$stopping" ] || break
    done
    while [ ''${#number_of[@]} -gt 0 ]; do
      ended=
      wait -n -p ended
      [ -n "$ended" ] || continue
      number=''${number_of[$ended]}
      unset "number_of[$ended]"
      if [ -z "$stopping" ]; then
        echo "slurmd of $machine-h$number has ended; it starts again" >&2
        sleep 1
        start "$number"
      fi
    done
  '';
}
