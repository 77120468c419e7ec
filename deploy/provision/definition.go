package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Definition returns a digest of all fields that a running machine cannot change. If the digest differs, the
// machine has to be redefined and restarted. The image is not included, because a machine keeps its disk;
// nor the identity, which a machine gets once; nor the address, which the network assigns.
func (s Spec) Definition() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %q %q %q %v",
		s.MAC, s.VCPUs, s.Memory, s.Disks, s.Pins, s.Firmware, s.Init, s.XML, s.Image.Kernel != ""))
	return hex.EncodeToString(sum[:8])
}
