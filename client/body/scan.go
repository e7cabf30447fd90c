package body

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// What is scanned here is JSON, as json.Valid has found: so nothing can be missing.

const blanks = " \t\r\n"

// inside returns what is between the brackets of a list or the braces of an object, without blanks in front.
func inside(raw []byte) []byte { return bytes.Trim(raw[1:len(raw)-1], blanks) }

// next parts a value from what comes behind it, without blanks around.
func next(text []byte) (value, rest []byte) {
	text = bytes.TrimLeft(text, blanks)
	n := extent(text)
	return text[:n], bytes.TrimLeft(text[n:], blanks)
}

// behindComma returns what comes behind the comma that the text begins with; nothing, if it has ended.
func behindComma(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	return bytes.TrimLeft(text[1:], blanks)
}

// extent returns how many bytes the value has that the text begins with.
func extent(text []byte) int {
	depth := 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at += quoted(text[at:]) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			if n := bytes.IndexAny(text[at:], ",]}"+blanks); n >= 0 { // a number, or a word
				return at + n
			}
			return len(text)
		}
		if depth == 0 {
			return at + 1
		}
	}
	return len(text)
}

// quoted returns how many bytes the string has that the text begins with, with its quotes.
func quoted(text []byte) int {
	for at := 1; ; at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
}

// halfPair returns the first escape of a string that is half of a surrogate pair without the other, or "".
func halfPair(raw []byte) string {
	var first rune // of a pair, which the escape just before is; else 0
	for len(raw) > 0 {
		at := bytes.IndexByte(raw, '\\')
		if at > 0 && first != 0 || at < 0 {
			break
		}
		raw = raw[at:]
		unit, size := escaped(raw)
		switch {
		case first != 0 && utf16.DecodeRune(first, unit) != '\uFFFD':
			first = 0
		case first != 0:
			return spelled(first)
		case utf16.IsSurrogate(unit) && unit >= 0xDC00:
			return spelled(unit)
		case utf16.IsSurrogate(unit):
			first = unit
		}
		raw = raw[size:]
	}
	if first != 0 {
		return spelled(first)
	}
	return ""
}

// escaped returns the UTF-16 unit of the escape that the text begins with, 0 for one of a letter, and its size.
func escaped(text []byte) (unit rune, size int) {
	if text[1] != 'u' {
		return 0, 2
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // four digits, as check has found
	return rune(n), 6
}

func spelled(unit rune) string { return `\u` + strconv.FormatInt(int64(unit), 16) }
