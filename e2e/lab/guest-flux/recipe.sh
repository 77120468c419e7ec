# shellcheck shell=sh disable=SC2034
# Additional packages of machines that can be nodes of a Flux instance: what Flux needs at run time.

packages="$packages
  libarchive13t64 libhwloc15 libjansson4 liblua5.1-0 liblz4-1 libmunge2 libncursesw6 libpython3.13 libsodium23 libsqlite3-0 libuuid1 libzmq5
  lua5.1 lua-posix python3 python3-cffi python3-ply python3-yaml
"
