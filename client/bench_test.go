package client

import "testing"

// BenchmarkParse reads a record as an application sends it: every record of every delay
// topic passes here.
func BenchmarkParse(b *testing.B) {
	for _, bench := range []struct {
		name    string
		headers []Header
	}{
		{"alone", headers("deliver-at", "1900000000123")},
		{"among others", headers("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"content-type", "application/json", "deliver-at", "1900000000123", "deliver-to", "orders", "deliver-id", "order-4711",
			"delivered-seq", "an earlier journey", "dialect", "de")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(bench.headers, stamped); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
