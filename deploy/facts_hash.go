package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"os"

	"github.com/nixbench/nixbench/nixeval"
)

// hashFacts returns a hash of the facts that an evaluator passes to the hive. It is empty if there are none, or if they cannot be
// read, which the evaluation reports.
func hashFacts(e *nixeval.Evaluator) string {
	if e.Facts == "" {
		return ""
	}
	data, err := os.ReadFile(e.Facts)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
