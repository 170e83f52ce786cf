package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/registry"
)

// ApiVersions tells the levels that this build has and those that are finalised; UpdateFeatures changes them for every
// broker of the cluster, all or none, and refuses in Kafka's words. (D16)
func TestFeatures(t *testing.T) {
	brokers := startCluster(t, 2)
	client := brokers[0].client().Broker(1)
	finalized := func(b *running) string {
		t.Helper()
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "go", "1"
		resp, err := req.RequestWith(t.Context(), b.client())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range resp.FinalizedFeatures {
			all = append(all, fmt.Sprintf("%s=%d", f.Name, f.MaxVersionLevel))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	update := func(validate bool, upgradeType int8, features ...any) string {
		t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.ValidateOnly = validate
		for i := 0; i < len(features); i += 2 {
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel, u.UpgradeType = features[i].(string), int16(features[i+1].(int)), upgradeType
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		resp, err := req.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode == 0 {
			return ""
		}
		return kerr.TypedErrorForCode(resp.ErrorCode).Message + ": " + strings.TrimPrefix(*resp.ErrorMessage, "The update failed for all features since the following feature had an error: ")
	}
	const founded = "eligible.leader.replicas.version=1 metadata.version=33 tidemark.version=1"
	if got := finalized(brokers[0]); got != founded {
		t.Errorf("a new cluster has %s", got)
	}
	for _, test := range []struct {
		got, want string
	}{
		{update(false, 1, "nosuch", 1), "INVALID_UPDATE_VERSION: Invalid update version 1 for feature nosuch. Local controller 1 does not support this feature."},
		{update(false, 1, "tidemark.version", 9), "INVALID_UPDATE_VERSION: Invalid update version 9 for feature tidemark.version. Local controller 1 only supports versions 1-1"},
		{update(false, 1, "metadata.version", 20), "INVALID_UPDATE_VERSION: Invalid update version 20 for feature metadata.version. Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."},
		{update(false, 2, "metadata.version", 20, "nosuch", 1), "INVALID_UPDATE_VERSION: Invalid update version 1 for feature nosuch. Local controller 1 does not support this feature."},
		{update(false, 0, "metadata.version", 20), "INVALID_REQUEST: Upgrade type 0 of feature metadata.version is unknown."},
		{update(false, 1, "metadata.version", 33, "metadata.version", 33), "INVALID_REQUEST: Each feature must appear at most once."},
		{update(true, 2, "metadata.version", 20), ""},
		{finalized(brokers[0]), founded},
		{update(false, 2, "metadata.version", 20), ""},
		{finalized(brokers[0]), strings.Replace(founded, "33", "20", 1)},
		{update(false, 1, "metadata.version", 33), ""},
		{finalized(brokers[0]), founded},
	} {
		if test.got != test.want {
			t.Errorf("got  %s\nwant %s", test.got, test.want)
		}
	}
	if err := explain(&registry.FeatureError{Feature: "tidemark.version", Level: 2, Broker: 3, Build: "0.1", Min: 1, Max: 1}, ""); !strings.Contains(err.Error(), "run the version that wrote it") {
		t.Errorf("a broker that is too old for its cluster: %v", err)
	} else if failed, ok := errors.AsType[*StartError](err); !ok || failed.Fault != NewerFormat {
		t.Errorf("a broker that is too old for its cluster: %v", err)
	}
}
