package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Definition returns a digest of the fields that cannot be changed while the machine runs. If the digest of a machine
// differs from the desired digest, the machine has to be redefined and restarted. The digest does not include the image
// (a machine keeps its disk), the identity (it is set only once), and the address (the network assigns it).
func (s Spec) Definition() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %q %q %q %v",
		s.MAC, s.VCPUs, s.Memory, s.Disks, s.Pins, s.Firmware, s.Init, s.XML, s.Image.Kernel != ""))
	return hex.EncodeToString(sum[:8])
}
