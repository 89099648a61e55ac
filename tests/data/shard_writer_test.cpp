// Archives of samples that are written: what becomes of them when the disk is full, and of an image folder.
#include <sys/resource.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/streams.h>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;

/// How large files may become that this process writes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

class ShardWriterTest {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  static Batch decode(const ShardSample&, SampleRandom&) { return {}; }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ShardWriterTest,
                 "ShardWriter: begins a new archive when one is full, and refuses what would be read otherwise") {
  ShardWriter writer(path("w"), {.most_samples = 2, .most_bytes = 3000});
  writer.add("a", {{"txt", "1"}});
  writer.add("b", {{"txt", std::string(2000, 'x')}});
  writer.add("c", {{"txt", std::string(9000, 'x')}});
  writer.add(std::string(200, 'd') + "/d", {{"seg.png", "y"}});
  for (const auto& [key, suffix] :
       std::vector<std::pair<std::string, std::string>>{{"e.f", "txt"},
                                                        {"", "txt"},
                                                        {"e", ""},
                                                        {"e", "TXT"},
                                                        {"e", "a/b"},
                                                        {std::string("e\0f", 3), "txt"},
                                                        {"e", std::string("txt\0", 4)},
                                                        {"__e__/a", "txt"},
                                                        {std::string(200, 'd') + "/d", "txt"}}) {
    CHECK_THROWS_AS(writer.add(key, {{suffix, ""}}), std::invalid_argument);
  }
  CHECK_THROWS_AS(writer.add("e", {{"txt", ""}, {"txt", ""}}), std::invalid_argument);
  CHECK_THROWS_AS(writer.add("e", {}), std::invalid_argument);
  writer.close();
  CHECK(writer.archives().size() == 3);
  std::vector<std::string> keys;
  for (const auto& archive : writer.archives()) {
    const WebDataset dataset(archive.string(), decode);
    CHECK(fs::file_size(archive) % 512 == 0);
    auto walk = dataset.open(0);
    while (const auto sample = walk.next()) keys.push_back(sample->key);
  }
  CHECK_THAT(keys, ElementsAre("a", "b", "c", std::string(200, 'd') + "/d"));
  CHECK_THROWS_AS(ShardWriter(path("w"), {.most_samples = 0}), std::invalid_argument);
  {
    ShardWriter dropped(path("dropped"));
    dropped.add("a", {{"txt", "1"}});
  }
  for (const auto& entry : fs::directory_iterator(path("")))
    CHECK_THAT(entry.path().filename().string(), !ContainsSubstring("dropped"));
}

TEST_CASE_METHOD(ShardWriterTest, "ShardWriter: a sample for which there is no room leaves nothing of itself") {
  ShardWriter writer(path("f"), {.most_samples = 3});
  writer.add("a", {{"txt", "1"}});
  const std::string content(100'000, 'x');
  {
    const FileSizeLimit limit(50'000);
    CHECK_THROWS_AS(writer.add("b", {{"cls", "2"}, {"txt", content}}), DataError);
    writer.add("c", {{"txt", "3"}});
  }
  writer.add("b", {{"cls", "2"}, {"txt", content}});
  {
    const FileSizeLimit limit(100'000);  // no room for the blocks of zeros
    CHECK_THROWS_AS(writer.close(), DataError);
  }
  writer.close();
  const WebDataset dataset(writer.archives().at(0).string(), decode);
  CHECK(dataset.part_size(0) == 3);
  std::vector<std::string> keys;
  auto walk = dataset.open(0);
  while (const auto sample = walk.next()) keys.push_back(sample->key + sample->text("txt").substr(0, 2));
  CHECK_THAT(keys, ElementsAre("a1", "c3", "bxx"));
  auto from_middle = dataset.open(0);
  CHECK(from_middle.skip(2) == 2);
  CHECK(from_middle.next().value().text("txt") == content);
}

TEST_CASE_METHOD(ShardWriterTest, "ShardWriter: an archive without its index is kept when the next one is written") {
  ShardWriter writer(path("n"), {.most_samples = 20});
  for (int i = 0; i < 20; ++i) writer.add(std::to_string(i), {{"txt", ""}});
  fs::create_directories(path("n-000000.tar.index.tmp-" + std::to_string(::getpid())));  // nothing can be written there
  CHECK_THROWS_AS(writer.add("20", {{"txt", ""}}), DataError);
  writer.add("20", {{"txt", ""}});
  writer.close();
  CHECK(writer.archives().size() == 2);
  CHECK(WebDataset(path("n-000000.tar").string(), decode).part_size(0) == 20);
  CHECK(WebDataset(path("n-000001.tar").string(), decode).part_size(0) == 1);
}

TEST_CASE_METHOD(ShardWriterTest, "write_shards: an image folder becomes archives of the same pictures and classes") {
  for (const auto* name : {"b/2.PPM", "a/1.ppm", "b/1.ppm"}) {
    fs::create_directories(path("images") / fs::path(name).parent_path());
    test::write_file(path("images") / name, "P6 1 1 255\n" + std::string(3, name[2]));
  }
  const ImageListing listing = list_image_folder(path("images"));
  const auto written = write_shards(listing, path("i"));
  REQUIRE(written.size() == 1);
  const WebDataset dataset(written[0].string(), decode);
  auto walk = dataset.open(0);
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const auto sample = walk.next().value();
    CHECK(sample.text("ppm") == test::read_file(listing.files[i]));
    CHECK(sample.number_in("cls") == listing.labels[i]);
  }
  CHECK_FALSE(walk.next());
  const auto shuffled = write_shards(listing, path("r"), 1);
  CHECK(test::read_file(shuffled[0]) == test::read_file(write_shards(listing, path("r"), 1)[0]));
}

}  // namespace
}  // namespace ddp
