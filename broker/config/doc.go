// Package config is what can be set of a node: the keys with their defaults, how they are
// loaded and printed, what is wrong with them, and what follows from them for a topic or
// a message. It reads the file; flags and environment are the caller's to give.
package config
