#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "launcher/os/machine/gpu_information.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

const std::vector<std::string> kFour = {"GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333", "GPU-dddd4444"};

TEST_CASE("VisibleGpus: are all when the variable is unset") {
  CHECK(visible_gpus(kFour, nullptr) == 4);
  CHECK(visible_gpus({}, nullptr) == 0);
}

TEST_CASE("VisibleGpus: are named by indices and UUIDs") {
  CHECK(visible_gpus(kFour, "2,0") == 2);
  CHECK(visible_gpus(kFour, " 1 , 3 ") == 2);
  CHECK(visible_gpus(kFour, "GPU-cccc3333") == 1);
  CHECK(visible_gpus(kFour, "GPU-c,GPU-aabb,0") == 3);
  CHECK(visible_gpus(kFour, "MIG-1234,MIG-5678") == 2);
}

TEST_CASE("VisibleGpus: come in the order of the variable") {
  CHECK(visible_gpu_uuids(kFour, nullptr) == kFour);
  CHECK(visible_gpu_uuids(kFour, "2,GPU-aabb") == std::vector<std::string>{"GPU-cccc3333", "GPU-aabb2222"});
  CHECK(visible_gpu_uuids(kFour, "1,1") == std::vector<std::string>{});
}

TEST_CASE("VisibleGpus: end at an entry that names no device") {
  CHECK(visible_gpus(kFour, "") == 0);
  CHECK(visible_gpus(kFour, "-1") == 0);
  CHECK(visible_gpus(kFour, "0,4,1") == 1);
  CHECK(visible_gpus(kFour, "0,,1") == 1);
  UNSCOPED_INFO("an ambiguous beginning");
  CHECK(visible_gpus(kFour, "1,GPU-aa") == 1);
  CHECK(visible_gpus(kFour, "0,1x") == 1);
  CHECK(visible_gpus(kFour, "99999999999999999999") == 0);
}

TEST_CASE("VisibleGpus: a repeated device hides all") {
  CHECK(visible_gpus(kFour, "0,1,0") == 0);
  CHECK(visible_gpus(kFour, "0,GPU-aaaa1111") == 0);
}

// The rule in other words: entries up to the first that names no device, nothing if one comes twice.
std::vector<std::string> shown(const std::vector<std::string>& entries,
                               const std::map<std::string, std::string>& meant) {
  std::vector<std::string> result;
  for (const auto& entry : entries) {
    const auto found = meant.find(entry);
    if (found == meant.end()) break;
    result.push_back(found->second);
  }
  return std::set(result.begin(), result.end()).size() == result.size() ? result : std::vector<std::string>{};
}

TEST_CASE("VisibleGpus: follow the rule for any list, with blanks anywhere around its entries") {
  std::mt19937 random(6);
  std::map<std::string, std::string> meant{{"MIG-1", "MIG-1"}, {"MIG-GPU-aaaa1111/1/0", "MIG-GPU-aaaa1111/1/0"}};
  for (std::size_t i = 0; i < kFour.size(); ++i) {
    meant[std::to_string(i)] = kFour[i];
    meant["0" + std::to_string(i)] = kFour[i];
    meant[kFour[i]] = kFour[i];
    meant[kFour[i].substr(0, 7)] = kFour[i];
  }
  std::vector<std::string> words{
      "", "4", "-0", "+1", "1.0", "0x1", "x", "GPU-", "GPU-aa", "GPU-aaaa11112", "gpu-cccc3333", "1 2", "MIG"};
  for (const auto& [word, device] : meant) words.insert(words.end(), 2, word);
  std::set<std::size_t> lengths;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> entries(1 + random() % 5);
    std::string text;
    for (auto& entry : entries) {
      entry = words[random() % words.size()];
      if (!text.empty() || &entry != entries.data()) text += ",";
      text += std::string(random() % 2, ' ') + entry + std::string(random() % 2, '\t');
    }
    CAPTURE(text);
    const auto expected = shown(entries, meant);
    REQUIRE(visible_gpu_uuids(kFour, text.c_str()) == expected);
    REQUIRE(visible_gpus(kFour, text.c_str()) == static_cast<int>(expected.size()));
    lengths.insert(expected.size());
  }
  CHECK(lengths.size() == 6);
}

TEST_CASE("VisibleGpus: a single one is meant by any beginning, none by any index") {
  CHECK(visible_gpu_uuids({"GPU-1"}, "GPU-") == std::vector<std::string>{"GPU-1"});
  CHECK(visible_gpus({}, "0") == 0);
  CHECK(visible_gpus({}, "GPU-") == 0);
  CHECK(visible_gpus({}, "MIG-1") == 1);
}

}  // namespace
}  // namespace launcher
