package provider

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize parses a size as it is written in the hive: 512M, 4G. Units are powers of 1024.
func ParseSize(text string) (uint64, error) {
	for i, unit := range []string{"K", "M", "G", "T"} {
		number, found := strings.CutSuffix(text, unit)
		shift := 10 * (i + 1)
		if n, err := strconv.ParseUint(number, 10, 64); found && err == nil && n > 0 && n <= math.MaxInt64>>shift {
			return n << shift, nil
		}
	}
	return 0, fmt.Errorf("%q is not a size; write a number with K, M, G or T, such as 4G", text)
}

func SizeText(n uint64) string {
	unit, names := uint64(1), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for i < len(names)-1 && n >= unit<<10 {
		unit, i = unit<<10, i+1
	}
	if n%unit == 0 {
		return fmt.Sprintf("%d %s", n/unit, names[i])
	}
	return fmt.Sprintf("%.1f %s", float64(n)/float64(unit), names[i])
}
