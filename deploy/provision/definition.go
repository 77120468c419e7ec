package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Definition is a mark of everything in a wish that a running machine cannot follow:
// where it differs, the machine has to be defined anew and restarted. The image does
// not count, since a machine keeps its disk; neither does who it is, which it was told
// once, nor its address, which the network gives.
func (s Spec) Definition() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %q %q %q %v",
		s.MAC, s.VCPUs, s.Memory, s.Disks, s.Pins, s.Firmware, s.Init, s.XML, s.Image.Kernel != ""))
	return hex.EncodeToString(sum[:8])
}
