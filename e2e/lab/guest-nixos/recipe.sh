# shellcheck shell=sh disable=SC2034
# Additional packages of machines that boot a real NixOS (see e2e/real): what nixpkgs' scripts and
# programs load, in Perl, Python and C.

packages="$packages
  perl libfile-slurp-perl libjson-perl libtry-tiny-perl
  python3 libdbus-1-3 dbus-user-session libpam-lastlog2 libcap2-bin tzdata jq netcat-openbsd rsync xz-utils
"
