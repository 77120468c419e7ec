package seed

import (
	"encoding/binary"
	"fmt"
	"strings"
)

const sector = 2048

// makeISO returns an ISO 9660 file system with a few files in its root folder. The file system has no Rock Ridge names:
// Linux shows META-DATA. as meta-data, and cloud-init reads the file meta-data. All dates are constant, so that the
// same content gives the same bytes.
//
// The library kdomanski/iso9660 is not used, because it first writes the files to a temporary folder. One of the files
// contains the private host key. If the run were killed, this file would remain in the temporary folder.
func makeISO(label string, files []File) ([]byte, error) {
	// Sectors: 16 volume descriptor, 17 terminator, 18 and 19 path tables, 20 root folder, 21 files.
	const (
		pathTable    = 18
		pathTableBig = 19
		rootAt       = 20
		filesAt      = 21
	)
	root := append(newDirectoryRecord("\x00", rootAt, sector, true), newDirectoryRecord("\x01", rootAt, sector, true)...)
	var content []byte
	for _, f := range files { // sorted by name, as the standard requires
		if len(f.Name) > 30 || f.Name != strings.ToUpper(f.Name) {
			return nil, fmt.Errorf("%s is not a valid ISO 9660 file name", f.Name)
		}
		root = append(root, newDirectoryRecord(f.Name+".;1", filesAt+len(content)/sector, len(f.Data), false)...)
		content = append(content, padToSector(f.Data)...)
	}
	if len(root) > sector {
		return nil, fmt.Errorf("the root folder has no space for %d files", len(files))
	}
	total := filesAt + len(content)/sector

	image := make([]byte, 16*sector) // the system area is empty, because only boot loaders use it
	d := make([]byte, sector)
	d[0] = 1
	copy(d[1:], "CD001\x01")
	fillWithSpaces(d[8:40], "LINUX")
	fillWithSpaces(d[40:72], label)
	putBoth32(d[80:], total)
	putBoth16(d[120:], 1)
	putBoth16(d[124:], 1)
	putBoth16(d[128:], sector)
	putBoth32(d[132:], 10) // size of a path table
	binary.LittleEndian.PutUint32(d[140:], pathTable)
	binary.BigEndian.PutUint32(d[148:], pathTableBig)
	copy(d[156:190], newDirectoryRecord("\x00", rootAt, sector, true))
	for _, text := range [][2]int{{190, 318}, {318, 446}, {446, 574}, {574, 702}, {702, 739}, {739, 776}, {776, 813}} {
		fillWithSpaces(d[text[0]:text[1]], "")
	}
	for at := 813; at < 881; at += 17 { // four unspecified dates
		fillField(d[at:at+16], "", '0')
	}
	d[881] = 1
	image = append(image, d...)
	image = append(image, padToSector([]byte("\xffCD001\x01"))...)

	little := make([]byte, 10)
	little[0] = 1
	binary.LittleEndian.PutUint32(little[2:], rootAt)
	binary.LittleEndian.PutUint16(little[6:], 1)
	big := make([]byte, 10)
	big[0] = 1
	binary.BigEndian.PutUint32(big[2:], rootAt)
	binary.BigEndian.PutUint16(big[6:], 1)
	image = append(image, padToSector(little)...)
	image = append(image, padToSector(big)...)
	image = append(image, padToSector(root)...)
	return append(image, content...), nil
}

// newDirectoryRecord returns the directory record of a file or folder. The file has size bytes and begins at the sector at.
func newDirectoryRecord(name string, at, size int, folder bool) []byte {
	length := 33 + len(name)
	length += length % 2
	r := make([]byte, length)
	r[0] = byte(length)
	putBoth32(r[2:], at)
	putBoth32(r[10:], size)
	copy(r[18:], []byte{100, 1, 1, 0, 0, 0, 0}) // 2000-01-01
	if folder {
		r[25] = 2
	}
	putBoth16(r[28:], 1)
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}

// padToSector appends zeros up to a multiple of the sector size, and at least one sector.
func padToSector(data []byte) []byte {
	n := max(1, (len(data)+sector-1)/sector) * sector
	return append(append(make([]byte, 0, n), data...), make([]byte, n-len(data))...)
}

// putBoth32 writes a number in little-endian, then in big-endian byte order, as the standard requires.
func putBoth32(to []byte, n int) {
	binary.LittleEndian.PutUint32(to, uint32(n))
	binary.BigEndian.PutUint32(to[4:], uint32(n))
}

func putBoth16(to []byte, n int) {
	binary.LittleEndian.PutUint16(to, uint16(n))
	binary.BigEndian.PutUint16(to[2:], uint16(n))
}

func fillWithSpaces(to []byte, text string) { fillField(to, text, ' ') }

func fillField(to []byte, text string, rest byte) {
	for i := range to {
		to[i] = rest
	}
	copy(to, text)
}
