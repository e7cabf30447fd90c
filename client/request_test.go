package client

import (
	"reflect"
	"testing"
)

// Each field but the reason is a change, also one that is added to the type some day.
func TestChangeRequest_changesSomethingWithAnyFieldButTheReason(t *testing.T) {
	full := ChangeRequest{
		DeliverAt: "1900000000000", DeliverAfter: "1h", DeliverTo: "bills", Partition: new(int32), ExpiresAt: "1900000000000", ExpiresAfter: "1h",
		Key: Data{Null: true}, Value: Text(""), Headers: []DataHeader{}, Reason: "it is time",
	}
	of := reflect.TypeFor[ChangeRequest]()
	for i := range of.NumField() {
		var r ChangeRequest
		reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		if reflect.ValueOf(r).IsZero() {
			t.Errorf("the test does not set %s", of.Field(i).Name)
		}
		p, isReason := r.Check(), of.Field(i).Name == "Reason"
		if isReason != (p != nil) || p != nil && (p.Code != CodeBadRequest || p.Field != "body") {
			t.Errorf("with %s alone: %v", of.Field(i).Name, p)
		}
	}
	if (&ChangeRequest{}).Check() == nil {
		t.Error("nothing is a change")
	}
}
