package config

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/carillonmq/carillon/broker/access"
)

// checkOIDC wants all of the section or nothing of it.
func (p *problems) checkOIDC(c OIDC) {
	if c.Issuer == "" {
		if given := cmp.Or(c.Audience, c.CA); given != "" || len(c.Roles) > 0 {
			p.add("api.oidc.issuer", "", "other keys of api.oidc are set, which count for tokens of an issuer alone; name it, or take them out")
		}
		return
	}
	issuer, err := url.Parse(c.Issuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.RawQuery != "" || issuer.Fragment != "" || issuer.User != nil:
		p.add("api.oidc.issuer", c.Issuer, "write the URL that the claim iss of its tokens has, such as https://id.example.com/realms/main")
	case issuer.Scheme != "https" && (issuer.Scheme != "http" || !IsLoopback(issuer.Hostname())):
		p.add("api.oidc.issuer", c.Issuer, "whoever is on the way could give keys of their own; use https, or http on loopback")
	}
	if c.Audience == "" {
		p.add("api.oidc.audience", "", "tokens of the issuer for other programs would count here; name what those for this cluster have in their claim aud")
	}
	if c.NameClaim == "" {
		p.add("api.oidc.name_claim", "", "name the claim that says who has a token, such as sub, email or preferred_username")
	}
	if c.RoleClaim == "" {
		p.add("api.oidc.role_claim", "", "name the claim that the roles go by, such as groups or realm_access.roles")
	}
	if len(c.Roles) == 0 {
		p.add("api.oidc.roles", "[]", "nobody whom the issuer knows may do anything; give at least one, such as {value: carillon-admins, role: admin}")
	}
	for i, r := range c.Roles {
		field := fmt.Sprintf("api.oidc.roles[%d]", i)
		if r.Value == "" {
			p.add(field+".value", "", "write what the claim %s of those has who have the role", c.RoleClaim)
		}
		p.oneOf(field+".role", r.Role, "viewer", "operator", "admin")
		p.checkNarrowing(field+".topics", r.Topics)
		p.checkNarrowing(field+".targets", r.Targets)
		if err := access.CheckSize(r.Grant()); err != nil {
			p.add(field, r.Value, "%v", err)
		}
	}
}

// Grant returns what the role allows.
func (r OIDCRole) Grant() access.Grant {
	return access.Grant{Role: access.Role(r.Role), ReadPayload: r.ReadPayload, Topics: r.Topics, Targets: r.Targets}
}

// checkNarrowing refuses a list that was given without a pattern in it: left out it allows all, which whoever
// writes an empty one may not mean.
func (p *problems) checkNarrowing(field string, patterns []string) {
	if patterns != nil && len(patterns) == 0 {
		p.add(field, "[]", `it has no pattern; write ["*"], or leave it out, for all`)
	}
	p.checkPatterns(field, patterns)
}
