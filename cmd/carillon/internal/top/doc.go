// Package top makes the screens of `carillon top` from what nodes tell. It asks nobody, draws nowhere and
// reads no clock: what it is given is all that a screen shows.
package top
