#!/bin/sh
# fetch-kernel.sh ROOT FOLDER: a hook of mmdebstrap that downloads Debian's kernel for
# clouds: small, and with virtio.
set -eu
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
apt-get update -qq
case $(dpkg --print-architecture) in
  arm64) meta=linux-image-cloud-arm64 ;;
  *) meta=linux-image-cloud-amd64 ;;
esac
kernel=$(apt-cache depends "$meta" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
cd "$2"
apt-get -o APT::Sandbox::User=root download -qq "$kernel"
