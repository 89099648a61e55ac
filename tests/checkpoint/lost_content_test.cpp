#include "checkpoint/shards/lost_content.h"

#include <map>
#include <string>
#include <vector>

#include "checkpoint/shards/shard_files.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::shards {
namespace {

class LostContent {
 protected:
  // The data are zeros.
  std::string put(const std::string& name, const std::vector<ChunkEntry>& chunks, const Metadata& metadata = {}) {
    const auto header = shard_header(chunks, metadata);
    const auto text = safetensors::format_header(header);
    data_begin_ = text.size();
    written_ = text.size() + (header.tensors.empty() ? 0 : header.tensors.back().end);
    test::write_file(folder_ / name, text + std::string(written_ - data_begin_, '\0'));
    files_.push_back(name);
    return name;
  }

  static ChunkEntry rows(const std::string& name, int64_t begin, int64_t count, int64_t of) {
    return {.name = name, .dtype = "float32", .shape = {of}, .box = {.offsets = {begin}, .sizes = {count}}};
  }

  std::string lost(const std::string& name) { return content_of_lost(file_system_, folder_.path(), files_, name); }
  std::string about(const std::string& name, uint64_t begin, uint64_t end) {
    return lost_bytes_text(file_system_, folder_.path(),
                           {.files = files_, .file = name, .begin = begin, .end = end, .written = written_});
  }

  test::TemporaryFolder folder_;
  storage::FileSystem file_system_;
  std::vector<std::string> files_;
  uint64_t data_begin_ = 0;
  uint64_t written_ = 0;
};

TEST_CASE_METHOD(LostContent, "LostContent: the headers of other files name a tensor of which rows are missing") {
  put("model-00001-of-00003.safetensors", {rows("a", 0, 2, 2), rows("b", 0, 2, 6)});
  put("model-00002-of-00003.safetensors", {rows("b", 2, 2, 6)});
  CHECK(lost("model-00003-of-00003.safetensors") == "a part of 'b'");
  put("model-00003-of-00003.safetensors", {rows("b", 4, 2, 6), rows("c", 0, 1, 1)});
  test::write_file(folder_ / "model-00002-of-00003.safetensors", "x");
  CHECK(lost("model-00002-of-00003.safetensors") == "a part of 'b'");
}

TEST_CASE_METHOD(LostContent, "LostContent: where no header tells a tensor the kind is named") {
  put("model-00001-of-00002.safetensors", {rows("a", 0, 2, 2)});
  CHECK(lost("model-00002-of-00002.safetensors") == "tensors of the model");
  CHECK(lost("optim-00002-of-00002.safetensors") == "states of the optimizer");
  CHECK(lost("optim-gen-00002-of-00002.safetensors") == "states of the optimizer 'gen'");
  CHECK(lost("shard-00002-model-00001-of-00001.safetensors") == "tensors of the model");
}

TEST_CASE_METHOD(LostContent, "LostContent: of an optimizer a parameter without a state is named") {
  const std::string groups = R"({"type": "", "param_groups": [{"params": ["a", "a.b"]}]})";
  put("optim-00001-of-00002.safetensors", {rows("state.a.step", 0, 1, 1)}, {{"ddprun.optimizer", groups}});
  CHECK(lost("optim-00002-of-00002.safetensors") == "perhaps the state of 'a.b'");
  put("optim-00001-of-00002.safetensors", {}, {{"ddprun.optimizer", "{\"param_groups\": 3}"}});
  CHECK(lost("optim-00002-of-00002.safetensors") == "states of the optimizer");
}

TEST_CASE_METHOD(LostContent, "LostContent: changed bytes are named by the file's own header, else by the others'") {
  put("model-00001-of-00002.safetensors", {rows("b", 0, 2, 6)});
  const auto file = put("model-00002-of-00002.safetensors", {rows("a", 0, 3, 3), rows("b", 2, 4, 6)});
  CHECK(about(file, data_begin_, data_begin_ + 12) == "; they hold 'a'");
  CHECK(about(file, data_begin_ + 12, written_) == "; they hold 'b'");
  CHECK(about(file, 0, written_) == "; they hold 'a' and others");
  CHECK(about(file, 0, data_begin_) == "; the file holds a part of 'b'");
  test::write_file(folder_ / file, "x");
  CHECK(about(file, 0, 1) == "; the file holds a part of 'b'");
}

}  // namespace
}  // namespace ddp::shards
