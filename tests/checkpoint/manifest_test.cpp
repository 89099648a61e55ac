#include "checkpoint/storage/manifest.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "tests/checkpoint/forged_manifest.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::with_checksum;

Manifest example() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {.step = 1200,
          .sequence = 17,
          .world_size = 4,
          .metrics = {{"loss", 0.125},
                      {"val/accuracy (%)", 71.3},
                      {"broken", std::nan("")},
                      {"best", kInfinity},
                      {"worst", -kInfinity}},
          .files = {{"model.safetensors", {.size = 123456789012, .crc32c = 0x00c0ffee}},
                    {"trainer.json", {.size = 0, .crc32c = 0}}}};
}

TEST_CASE("Manifest: comes back as it was written") {
  const auto parsed = parse_manifest(format_manifest(example()));
  CHECK(parsed.step == 1200);
  CHECK(parsed.sequence == 17);
  CHECK(parsed.world_size == 4);
  CHECK(parsed.metrics.at("best") == example().metrics.at("best"));
  CHECK(parsed.metrics.at("worst") == example().metrics.at("worst"));
  CHECK(parsed.files == example().files);
  CHECK(parsed.metrics.at("val/accuracy (%)") == 71.3);
  CHECK(std::isnan(parsed.metrics.at("broken")));
  const auto empty = parse_manifest(format_manifest({}));
  CHECK((empty.files.empty() && empty.metrics.empty()));
}

TEST_CASE("Manifest: the version without a sequence is still read and written") {
  auto manifest = example();
  manifest.sequence = 0;
  const auto text = format_manifest(manifest);
  CHECK_THAT(text, ContainsSubstring("\"version\": 1,\n  \"step\": 1200,\n  \"world_size\": 4,"));
  CHECK_THAT(text, ContainsSubstring("\"best\": null"));
  const auto parsed = parse_manifest(text);
  CHECK(parsed.sequence == 0);
  CHECK(std::isnan(parsed.metrics.at("best")));
}

TEST_CASE("Manifest: every single changed, cut or added byte is refused") {
  const auto text = format_manifest(example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      auto changed = text;
      changed[i] = static_cast<char>(value);
      if (changed == text) continue;
      INFO(i << " " << value);
      CHECK_THROWS_AS(parse_manifest(changed), ManifestError);
    }
    UNSCOPED_INFO(i);
    CHECK_THROWS_AS(parse_manifest(text.substr(0, i)), ManifestError);
    CHECK_THROWS_AS(parse_manifest(text + text.substr(0, i + 1)), ManifestError);
  }
}

TEST_CASE("Manifest: a forged checksum does not open other folders") {
  const auto forged = [](const std::string& from, const std::string& to) {
    auto text = format_manifest(example());
    text.replace(text.find(from), from.size(), to);
    return error_of([&] { parse_manifest(with_checksum(text)); });
  };
  CHECK_THAT(forged("model.safetensors", "../../etc/passwd"), ContainsSubstring("cannot be the name"));
  CHECK_THAT(forged("model.safetensors", ".hidden"), ContainsSubstring("cannot be the name"));
  CHECK_THAT(forged("\"step\": 1200", "\"step\": -1"), ContainsSubstring("must not be negative"));
  CHECK_THAT(forged("\"step\": 1200", "\"step\": 01200"), ContainsSubstring("not in the form"));
  CHECK_THAT(forged("\"world_size\": 4", "\"world_size\": 0"), ContainsSubstring("must be from 1 to 1048576"));
  CHECK_THAT(forged("\"world_size\": 4", "\"world_size\": 1000000000"),
             ContainsSubstring("must be from 1 to 1048576, but is 1000000000"));
  CHECK_THAT(forged("\"version\": 2", "\"version\": 3"),
             ContainsSubstring("version 3, but this program reads versions 1 and 2"));
  CHECK_THAT(forged("\"version\": 2", "\"version\": 1"), ContainsSubstring("does not have a manifest's format"));
  CHECK_THAT(forged("\"sequence\": 17", "\"sequence\": 0"), ContainsSubstring("not in the form"));
  CHECK_THAT(forged("\"sequence\": 17", "\"sequence\": -1"), ContainsSubstring("must not be negative"));
  CHECK_THAT(forged("{\"__float__\": \"nan\"}", "{\"__float__\": \"NaN\"}"),
             ContainsSubstring("does not have a manifest's format"));
  CHECK_THAT(forged("{\"__float__\": \"nan\"}", "null"), ContainsSubstring("not in the form"));
}

TEST_CASE("Manifest: what cannot be written is said") {
  const auto refusal = [](const Manifest& manifest) { return error_of([&] { format_manifest(manifest); }); };
  CHECK_THAT(refusal({.step = -1}), ContainsSubstring("step must not be negative"));
  CHECK_THAT(refusal({.metrics = {{"a\"b", 1}}}), ContainsSubstring("the metric 'a\"b' needs a name"));
  CHECK_THAT(refusal({.files = {{"a/b", {}}}}), ContainsSubstring("'a/b' cannot be the name"));
}

TEST_CASE("Manifest: the largest that can be written can be read") {
  Manifest manifest{.sequence = 1};
  for (int i = 0; i < 4108; ++i) manifest.metrics[std::string(240, 'm') + std::to_string(1000 + i)] = 0;
  std::string largest;
  for (int i = 0;; ++i) {
    manifest.metrics["n" + std::to_string(i)] = 0;
    std::string text;
    const auto refusal = error_of<std::invalid_argument>([&] { text = format_manifest(manifest); });
    if (refusal != "no error") {
      CHECK_THAT(refusal, ContainsSubstring("give it fewer metrics"));
      break;
    }
    largest = std::move(text);
  }
  CHECK(largest.size() > kMaxManifestBytes - 100);
  CHECK(parse_manifest(largest).metrics.size() + 1 == manifest.metrics.size());
}

TEST_CASE("Manifest: names of metrics that earlier versions took are still read") {
  const Manifest earlier{.sequence = 1, .metrics = {{"lo\xffss", 1}}};
  CHECK(parse_manifest(format_manifest(earlier)).metrics == earlier.metrics);
  CHECK_THROWS_AS(check_new_manifest(earlier), std::invalid_argument);
  for (const auto* name : {"\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "cut \xe2\x82"}) {
    CHECK_THROWS_AS(check_new_manifest({.metrics = {{name, 1}}}), std::invalid_argument);
  }
  CHECK_NOTHROW(check_new_manifest({.metrics = {{"\xe2\x82\xac \xf0\x9f\x9a\x80", 1}}}));
}

}  // namespace
}  // namespace ddp::storage
