package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// readmeAPI is a cell pair of the README's table: a name and its versions.
var readmeAPI = regexp.MustCompile(`\| ([A-Z][A-Za-z]+) \| (\d+(?:–\d+)?)`)

// TestReadmeListsTheTable keeps the README's table of versions true and complete.
func TestReadmeListsTheTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, match := range readmeAPI.FindAllStringSubmatch(string(text), -1) {
		listed[match[1]] = match[2]
	}
	for i := range apis {
		api := &apis[i]
		want := fmt.Sprintf("%d–%d", api.AdvertisedMin, api.Max)
		if api.AdvertisedMin == api.Max {
			want = fmt.Sprint(api.Max)
		}
		if listed[api.Name] != want {
			t.Errorf("%s: the README says %q, the table %s", api.Name, listed[api.Name], want)
		}
		delete(listed, api.Name)
	}
	for name := range listed {
		t.Errorf("the README lists %s, which the table does not have", name)
	}
}
