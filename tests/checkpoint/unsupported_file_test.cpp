// Files and folders that people give in place of weights are named for what they are.
#include "checkpoint/core/unsupported_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "checkpoint/core/sharded_index.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("OtherFile: what is known is named, with what to do") {
  struct Case {
    std::string bytes;
    const char* what;
  };
  const Case cases[] = {
      {"", "it is empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 44661\n", "Git LFS pointer"},
      {"\xef\xbb\xbfversion https://git-lfs.github.com/spec/v1\r\noid sha256:00\r\nsize 44661\r\n", "Git LFS pointer"},
      {"\x08\x08\x12\x07pytorch\x1a\x05"
       "2.4.0:\xe6\x06\n*\n\x06input"s,
       "an ONNX model"},
      {"\x08\x0a\x3a\xaf\x01\n\x1c\n\x01x"s, "an ONNX model"},
      {"<!DOCTYPE html>\n<html lang=\"en\">", "HTML page"},
      {"\xef\xbb\xbf\r\n  <HTML>", "HTML page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "XML document"},
      {R"({"metadata": {}, "weight_map": {"a": "b.safetensors"}})", "index of a model in several files"},
      {R"({"error": "Entry not found"})", "JSON text"},
      {"404: Not Found", "text that begins with '404: Not Found'"},
      {"Entry not found\nmore", "text that begins with 'Entry not found'"},
      {"\x1f\x8b\x08\0\0\0\0\0"s, "packed with gzip"},
      {"\xfd"
       "7zXZ\0\0"s,
       "packed with xz"},
      {"\x28\xb5\x2f\xfd\x04"s, "packed with zstd"},
      {"BZh91AY", "packed with bzip2"},
      {"PK\5\6"s + std::string(18, '\0'), "a zip archive without files"},
      {"\x93NUMPY\1\0v\0"s, "array of NumPy"},
      {"\x89HDF\r\n\x1a\n\0\0"s, "HDF5"},
      {"GGUF\3\0\0\0"s, "GGUF"},
      {"\x80\4\x95\x10\0\0\0\0\0\0\0}."s, "a pickle that torch.save did not write"},
      {"(dp0\nS'a'\np1\nI1\ns.", "a pickle that torch.save did not write"},
      {"}q\0X\1\0\0\0aq\1K\1s."s, "a pickle that torch.save did not write"},
      {"ccollections\nOrderedDict\np0\n(tRp1\n.", "a pickle that torch.save did not write"},
      {"L119547037146038801333356L\n.M\xe9\3."s, "torch.save wrote it with pickle protocol 0 or 1"},
      {std::string(5000, '\0'), "its beginning is all zeros"},
  };
  for (const auto& [bytes, what] : cases) {
    INFO(what);
    CHECK_THAT(describe_unsupported_file(bytes, "model.safetensors"), ContainsSubstring(what));
    CHECK_THAT(unsupported_file_or(bytes, "model.safetensors", "reason"), ContainsSubstring(what));
  }
}

TEST_CASE("OtherFile: of bytes that are not known nothing is said") {
  for (const auto& bytes : {"\x08\0\0\0\0\0\0\0{}      "s, "\1\2\3"s, "\x7b\0\0\0\0\0\0\0{"s,
                            "\x08\x08\x12\0\0\0\0\0{"s, "\x08\x08\x12"s, "}q\0X\1\0"s, "ca.b\n\1."s}) {
    CHECK(describe_unsupported_file(bytes, "model.safetensors").empty());
    CHECK(unsupported_file_or(bytes, "model.safetensors", "reason") == "reason");
  }
}

TEST_CASE("OtherFile: nothing of the file is a command to the terminal") {
  const auto what = describe_unsupported_file("404 \xc2\x9b[2J page", "model.pt");
  CHECK(what.find('\x9b') == std::string::npos);
  CHECK(what.size() < 200);
}

TEST_CASE("OtherFile: files and folders of torch.distributed.checkpoint are named by their names") {
  CHECK_THAT(describe_unsupported_file("PK\3\4", "run/__0_0.distcp"), ContainsSubstring("dcp_to_torch_save"));
  CHECK_THAT(describe_unsupported_file("\x80\2", "run/.metadata"), ContainsSubstring("torch.distributed.checkpoint"));
  const test::TemporaryFolder folder;
  CHECK(describe_unsupported_folder(folder.path()).empty());
  test::write_file(folder / "__0_0.distcp", "PK\3\4");
  CHECK_THAT(describe_unsupported_folder(folder.path()), ContainsSubstring("but not their .metadata"));
  CHECK_THAT(test::error_of([&] { model_in_folder(folder.path()); }), ContainsSubstring("but not their .metadata"));
  std::filesystem::create_symlink(".metadata", folder / ".metadata");
  CHECK_THAT(describe_unsupported_folder(folder.path()), ContainsSubstring(".metadata is not a regular file"));
  std::filesystem::remove(folder / ".metadata");
  REQUIRE(mkfifo((folder / ".metadata").c_str(), 0600) == 0);
  CHECK_THAT(describe_unsupported_folder(folder.path()), ContainsSubstring(".metadata is not a regular file"));
  std::filesystem::remove(folder / ".metadata");
  test::write_file(folder / ".metadata", "\x80\2");
  CHECK_THAT(describe_unsupported_folder(folder.path()), ContainsSubstring("dcp_to_torch_save"));
  CHECK_THAT(test::error_of([&] { model_in_folder(folder.path()); }), ContainsSubstring("dcp_to_torch_save"));
}

}  // namespace
}  // namespace ddp
