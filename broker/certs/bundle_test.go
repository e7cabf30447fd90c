package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBundle_refusesWhatCannotBeUsed(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		sound, other := s.issue(ca, time.Hour, "n1"), s.issue(ca, time.Hour, "n1")
		ended := s.issue(ca, time.Minute, "n1")
		early, err := ca.Issue([]string{"n1"}, time.Now().Add(24*time.Hour), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.pass(2 * time.Minute)
		for _, test := range []struct {
			what      string
			ca, shown Pair
			want      string
		}{
			{"a sound one", ca, sound, ""},
			{"another's key", ca, Pair{sound.Cert, other.Key}, "private key does not match public key: name a certificate and its key"},
			{"one that has ended", ca, ended, "n1.pem: the certificate of \"CN=n1\" ended at 2000-01-01T00:01:00Z: put a new one in its place"},
			{"one of tomorrow", ca, early, "is valid from 2000-01-01T23:00:00Z on only: correct this machine's clock"},
			{"no CA", Pair{Cert: []byte("hello")}, sound, "n1.ca holds no certificate: name a PEM file that begins with"},
			{"a broken CA", Pair{Cert: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")}, sound, "n1.ca: certificate 1: x509: "},
			{"no certificate", ca, Pair{}, "failed to find any PEM data"},
		} {
			b, err := s.write("n1", test.ca, test.shown).ReadFiles()
			if test.want == "" {
				if err != nil || !b.Expiry.Equal(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)) {
					t.Errorf("%s: %v, ends %v", test.what, err, b.Expiry)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", test.what, err, test.want)
			}
		}
		paths := s.write("n1", ca, sound)
		os.Chmod(paths.Key, 0o644)
		if _, err := paths.ReadFiles(); err == nil || !strings.Contains(err.Error(), "run chmod o-rwx,g-w") {
			t.Errorf("a key that others may read: %v", err)
		}
		os.Remove(paths.Key)
		if _, err := paths.ReadFiles(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no key: %v", err)
		}
	})
}

// A file is read while it is written. What it says so far would be trusted or shown, and the rest be missing.
func TestBundle_refusesWhatIsHalfWritten(t *testing.T) {
	inSite(t, func(s *site) {
		ours, other := s.authority("ours"), s.authority("other")
		sound := s.issue(ours, time.Hour, "n1")
		both, chain := slices.Concat(ours.Cert, other.Cert), slices.Concat(sound.Cert, other.Cert)
		const commented = "# what -----BEGIN CERTIFICATE----- means\n"
		for _, test := range []struct {
			what      string
			ca, shown []byte
			want      string
		}{
			{"whole", both, chain, ""},
			{"whole, with comments", slices.Concat([]byte(commented), ours.Cert, []byte(commented), other.Cert, []byte(commented)), sound.Cert, ""},
			{"whole, with a key", both, slices.Concat(sound.Cert, sound.Key), ""},
			{"an authority that is cut", both[:len(both)-40], sound.Cert, "n1.ca: a block of PEM does not end"},
			{"an authority of which a line is there", both[:len(ours.Cert)+30], sound.Cert, "n1.ca: a block of PEM does not end"},
			{"an authority in the middle", slices.Concat(ours.Cert[:len(ours.Cert)/2], []byte("\n"), other.Cert), sound.Cert, "n1.ca: a block of PEM does not end"},
			{"a chain that is cut", both, chain[:len(chain)-40], "n1.pem: a block of PEM does not end"},
		} {
			_, err := s.write("n1", Pair{Cert: test.ca}, Pair{test.shown, sound.Key}).ReadFiles()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.what, err, test.want)
			}
		}
	})
}

// A certificate for long is late in its last week, one for a short time in the last quarter of it.
func TestBundle_tellsOfItsEndInTime(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		for lasts, late := range map[time.Duration]time.Duration{300 * 24 * time.Hour: 7 * 24 * time.Hour, 23 * time.Hour: 6 * time.Hour} {
			b, err := s.write("n1", ca, s.issue(ca, lasts, "n1")).ReadFiles()
			if err != nil {
				t.Fatal(err)
			}
			ends := time.Now().Add(lasts)
			for before, want := range map[time.Duration]string{late + time.Minute: "", late - time.Minute: "x: the certificate ends at ", -time.Minute: "x: the certificate ended at "} {
				if got := b.Ending("x", ends.Add(-before)); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
					t.Errorf("of %v, %v before its end: %q, want %q", lasts, before, got, want)
				}
			}
		}
	})
}

// Nodes that cannot be members to each other had better not start.
func TestBundle_refusesToShowWhatNoNodeTakesForTheMember(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		for _, test := range []struct {
			issued string
			asked  bool // for certificates of callers
			want   string
		}{
			{"n1", true, ""},
			{"one.example", true, ""},
			{"*.example", false, ""},
			{"*.example", true, `is issued to ["*.example"], one of ["n1" "one.example"] by a wildcard alone, and no node takes this one for a member by that: name one`},
			{"n2", false, `is issued to ["n2"], and the others want one of ["n1" "one.example"]: name that of this node`},
			{"n2", true, "name that of this node"},
		} {
			paths := s.write("n1", ca, s.issue(ca, time.Hour, test.issued))
			if !test.asked {
				paths.ClientCA = ""
			}
			b, err := paths.ReadFiles()
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckShown(names["localhost:1"]); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, callers asked for certificates: %t: %v, want %q", test.issued, test.asked, err, test.want)
			}
		}
	})
}

// One that peers refuse had better not come into force: it would cut the node off without a word. That of another authority
// is taken once that one is trusted, so that authorities can be exchanged.
func TestBundle_refusesToShowWhatPeersWouldRefuse(t *testing.T) {
	inSite(t, func(s *site) {
		ours, other := s.authority("ours"), s.authority("other")
		both := Pair{Cert: slices.Concat(ours.Cert, other.Cert)}
		usedFor := func(usages ...x509.ExtKeyUsage) Pair {
			now := time.Now()
			pair, err := ours.issue(&x509.Certificate{
				Subject: pkix.Name{CommonName: "n1"}, DNSNames: []string{"n1"}, NotBefore: now, NotAfter: now.Add(time.Hour),
				KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages,
			})
			if err != nil {
				t.Fatal(err)
			}
			return pair
		}
		const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
		const asClient, asServer = "n1.pem: the certificate is not for authentication as a client, so nodes that are dialled by", "n1.pem: the certificate is not for authentication as a server, so nodes that dial this one"
		const stranger = "by the authorities in "
		for _, test := range []struct {
			what               string
			trusted, shown     Pair
			noCA, asksNoCaller bool
			want               string
		}{
			{what: "ours", trusted: ours, shown: s.issue(ours, time.Hour, "n1")},
			{what: "another's", trusted: ours, shown: s.issue(other, time.Hour, "n1"), want: stranger},
			{what: "another's, callers asked for certificates alone", trusted: ours, shown: s.issue(other, time.Hour, "n1"), noCA: true, want: stranger},
			{what: "another's, of no authority that nodes were told of", trusted: ours, shown: s.issue(other, time.Hour, "n1"), noCA: true, asksNoCaller: true},
			{what: "of the old one of two", trusted: both, shown: s.issue(ours, time.Hour, "n1")},
			{what: "of the new one of two", trusted: both, shown: s.issue(other, time.Hour, "n1")},
			{what: "for any usage", trusted: ours, shown: usedFor()},
			{what: "for servers", trusted: ours, shown: usedFor(server), want: asClient},
			{what: "for servers, no caller asked", trusted: ours, shown: usedFor(server), asksNoCaller: true},
			{what: "for callers", trusted: ours, shown: usedFor(client), want: asServer},
		} {
			paths := s.write("n1", test.trusted, test.shown)
			if test.noCA {
				paths.CA = ""
			}
			if test.asksNoCaller {
				paths.ClientCA = ""
			}
			b, err := paths.ReadFiles()
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckSigned(paths); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.what, err, test.want)
			}
		}
	})
}
