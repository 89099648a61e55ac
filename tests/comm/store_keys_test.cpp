// No two things in the store may have one name.
#include "comm/group/store_keys.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

namespace ddp::keys {
namespace {

TEST_CASE("StoreKeys: no two kinds, ranks or numbers share a key") {
  std::set<std::string> all;
  int made = 0;
  const auto add = [&](const std::string& key) {
    INFO(key);
    CHECK(all.insert(key).second);
    ++made;
  };
  add(agreement());
  add(investigators());
  add(verdict());
  add(gpu("GPU-1"));
  add(gpu(""));
  for (int rank = 0; rank < 120; ++rank) {
    for (const auto kind :
         {holder, generation, present, connected, exited, closing, failed, learned, silent, questions}) {
      add(kind(rank));
    }
    for (int64_t number = 0; number < 12; ++number) {
      add(question(rank, number));
      add(answer(rank, number));
    }
    for (uint64_t comparison = 0; comparison < 12; ++comparison) add(compared(comparison, rank));
  }
  for (uint64_t comparison = 0; comparison < 12; ++comparison) add(compared(comparison, -1));
  CHECK(all.size() == static_cast<size_t>(made));
}

// PrefixStore joins prefix and key by "/": what lies below one prefix may not be a key below another.
TEST_CASE("StoreKeys: spaces, groups and sub groups lie apart from each other and from the keys in them") {
  std::set<std::string> all;
  for (int restart = 0; restart < 12; ++restart) {
    for (int64_t number = 0; number < 12; ++number) {
      for (int rank = 0; rank < 12; ++rank) {
        CHECK(all.insert(space(restart) + "/" + group(number) + "/" + present(rank)).second);
        CHECK(all.insert(space(restart) + "/" + group(number) + "/" + subgroup(rank) + "/" + present(0)).second);
      }
    }
    for (int rank = 0; rank < 12; ++rank) {
      CHECK(all.insert(space(restart) + "/" + holder(rank)).second);
      CHECK(all.insert(space(restart) + "/" + generation(rank)).second);
    }
  }
  for (const std::string& key : all) CHECK(key.starts_with("ddprun/"));
}

}  // namespace
}  // namespace ddp::keys
