# Arguments NAME=PROGRAM...: the schedulers of this system, each with its cleanup program. This program runs the recorded cleanup
# programs of all other schedulers, and then records the cleanup programs of the schedulers of this system.
own=' '
for pair; do own="$own${pair%%=*} "; done
mkdir -p "$record" || exit

failed=0
for link in "$record"/*; do
  [ -L "$link" ] || continue
  name=${link##*/}
  case $own in *" $name "*) continue ;; esac
  if [ ! -x "$link" ]; then
    echo "$name ran on this node, but its cleanup $(readlink "$link") does not exist any more; reboot the node, and delete $link" >&2
    failed=1
    continue
  fi
  echo "cleaning up after $name"
  begun=$EPOCHREALTIME
  timeout --kill-after=5 "$time_limit" "$link"
  status=$?
  if [ "$status" != 0 ]; then
    echo "the cleanup after $name, $(readlink "$link"), failed with exit status $status; correct the cause, and run: systemctl restart $unit; or reboot the node" >&2
    failed=1
    continue
  fi
  rm -f "$link"
  echo "cleaned up after $name in $(((${EPOCHREALTIME/[.,]/} - ${begun/[.,]/}) / 1000)) ms"
done
# Fail if something of the previous scheduler is left on the node, so that the new scheduler does not start.
[ "$failed" = 0 ] || exit 1

for pair; do
  ln -sfn "${pair#*=}" "$record/.new" && mv -fT "$record/.new" "$record/${pair%%=*}" || exit
done
