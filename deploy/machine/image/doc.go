// Package image finds and builds the images from which machines are created.
//
// The image of a role is a file or folder that the hive names, or is built from the modules of the role. [Loader.Load] returns images
// with a hash that stands for their content. On hypervisors, an image has this hash in its name.
package image
