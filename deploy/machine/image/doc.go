// Package image finds and builds the images from which machines are created.
//
// The image of a role is a file or folder that the hive names, or is built from the modules of the role. [Loader.Load] returns
// images with the hash of their content, which names them on hypervisors. The hashes are cached in the state folder.
package image
