# A real file system with these paths in it, made by the mke2fs of the machine that
# builds: like the programs of nodes it is Debian's, and so needs `sandbox = false`.
{
  runCommand,
  storePaths,
  volumeLabel,
  populateImageCommands ? "",
  uuid ? "44444444-4444-4444-8888-888888888888",
}:
runCommand "ext4-fs.img" { inherit storePaths; } ''
  mkdir -p files root/nix/store
  ${populateImageCommands}
  for path in $storePaths; do
    cp -r "$path" root/nix/store/
    echo "$path" >> root/nix-path-registration
  done
  cp -r files/. root/
  /usr/sbin/mke2fs -q -t ext4 -b 4096 -L ${volumeLabel} -U ${uuid} -E root_owner=0:0 -d root "$out" 64M
''
