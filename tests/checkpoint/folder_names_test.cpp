#include "checkpoint/storage/folder_names.h"

#include <limits>
#include <set>
#include <string>

#include "tests/support/catch.h"

namespace ddp::storage {
namespace {

using namespace std::string_literals;

TEST_CASE("FolderNames: every step has one name, and only that one is its") {
  for (const int64_t step :
       {int64_t{0}, int64_t{1}, int64_t{99'999'999}, int64_t{100'000'000}, std::numeric_limits<int64_t>::max()}) {
    CHECK(step_of(folder_name(step)) == step);
  }
  CHECK(folder_name(1200) == "step-00001200");
  for (const auto& name :
       {""s, "step-"s, "step-1"s, "step-0000001"s, "step-000000001"s, "step-+0000001"s, "step--0000001"s,
        "step--00000000"s, "step- 0000001"s, "step-0000001 "s, "step-00000001/"s, "Step-00000001"s, "step-0x000001"s,
        "step-9223372036854775808"s, "step-99999999999999999999999"s, "step-00000001\0"s, "step-\xd9\xa1"s,
        "step-00000001.tmp-1"s, "latest"s}) {
    INFO(name);
    CHECK_FALSE(step_of(name));
  }
}

TEST_CASE("FolderNames: a leftover is one of a checkpoint or of latest") {
  const auto id = random_id();
  const auto temporary = leftover(temporary_name(folder_name(7), id));
  REQUIRE(temporary);
  CHECK(temporary->kind == Leftover::Kind::kTemporary);
  CHECK(temporary->target == "step-00000007");
  const auto replaced = leftover(replaced_name(folder_name(7), id));
  REQUIRE(replaced);
  CHECK(replaced->kind == Leftover::Kind::kReplaced);
  CHECK(leftover(temporary_name(kLatestName, id))->target == "latest");
  for (const auto* name :
       {"", "step-00000007", "latest", "my.tmp-1", ".tmp-1", ".old-1", "step-7.tmp-1", "writer.lock.tmp-1",
        "latest2.tmp-1", "previous-1.old-1", "step-00000007.TMP-1", "step-00000007tmp-1", "x/step-00000007.tmp-1"}) {
    INFO(name);
    CHECK_FALSE(leftover(name));
  }
}

TEST_CASE("FolderNames: ids are sixteen digits and differ") {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const auto id = random_id();
    CHECK(id.size() == 16);
    CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    ids.insert(id);
  }
  CHECK(ids.size() == 1000);
}

}  // namespace
}  // namespace ddp::storage
