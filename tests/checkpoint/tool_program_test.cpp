// The command line of ddprun-checkpoint, on files and folders as others may have left them.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/staged_folder.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

class Tool {
 protected:
  test::Outcome run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TOOL);
    return test::ChildProcess({.arguments = std::move(arguments)}).wait(std::chrono::seconds(60));
  }
  test::Outcome run(const std::string& command, const fs::path& path) { return run({command, path.string()}); }

  // A checkpoint of these files.
  fs::path save(int64_t step, const std::map<std::string, std::string>& files,
                const std::map<std::string, double>& metrics = {}, int world_size = 2) {
    storage::FileSystem file_system;
    storage::StagedFolder staged(file_system, folder_ / "run", step);
    for (const auto& [name, text] : files) {
      staged.write(name, [&](storage::ByteSink& sink) { sink.write(text.data(), text.size()); });
    }
    staged.commit({.sequence = step, .world_size = world_size, .metrics = metrics});
    return folder_ / "run" / storage::folder_name(step);
  }

  static std::string tensors(const std::string& name, const Metadata& metadata = {}) {
    safetensors::Header header;
    header.metadata = metadata;
    header.tensors = {{.name = name, .dtype = safetensors::DType::kF32, .shape = {2, 1}}};
    safetensors::assign_ranges(header.tensors);
    return safetensors::format_header(header) + "12345678";
  }

  fs::path put(const std::string& name, const std::string& content) {
    test::write_file(folder_ / name, content);
    return folder_ / name;
  }

  test::TemporaryFolder folder_;
};

bool is_clean(const std::string& output) {
  return std::ranges::none_of(output, [](char c) { return (c >= 0 && c < ' ' && c != '\n') || c == 0x7f; }) &&
         output.find("\xc2\x9b") == std::string::npos;
}

TEST_CASE_METHOD(Tool, "Tool: what it cannot do is said on standard error, with a status that tells") {
  CHECK(run(std::vector<std::string>{}).status == 2);
  CHECK(run({"inspect"}).status == 2);
  CHECK(run({"explain", "x"}).status == 2);
  CHECK(run({"verify", "x", "y"}).status == 2);
  CHECK(run({"inspect", "--weights-only", "x"}).status == 2);
  const auto help = run({"--help"});
  CHECK(help.status == 0);
  for (const auto* command : {"inspect", "verify", "convert"}) CHECK_THAT(help.output, ContainsSubstring(command));
  for (const auto* command : {"inspect", "verify"}) {
    const auto absent = run(command, folder_ / "absent");
    CHECK(absent.status == 1);
    CHECK_THAT(absent.errors, Catch::Matchers::StartsWith("ddprun-checkpoint: ") && ContainsSubstring("absent") &&
                                  ContainsSubstring("No such file"));
    CHECK(absent.output.empty());
  }
}

TEST_CASE_METHOD(Tool, "Tool: a directory is listed, the last saved first, with its damage") {
  save(1, {{"model.safetensors", tensors("w")}}, {{"loss", 0.5}}, 1);
  const auto damaged = save(2, {{"model.safetensors", tensors("w")}});
  save(3, {{"model.safetensors", tensors("w")}});
  fs::resize_file(damaged / "model.safetensors", 3);
  const auto result = run("inspect", folder_ / "run");
  CHECK(result.status == 1);
  CHECK_THAT(result.output,
             Catch::Matchers::Matches("step 3: [0-9]+ bytes, 2 ranks\nstep 2: DAMAGED: .* has 3 bytes.*\n"
                                      "step 1: [0-9]+ bytes, 1 rank, loss 0.5\n"));
  fs::remove_all(damaged);
  CHECK(run("inspect", folder_ / "run").status == 0);
}

TEST_CASE_METHOD(Tool, "Tool: verify reads every byte, of a directory, of a checkpoint and of a file") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}, {"trainer.json", "{}"}});
  for (const auto& path : {folder_ / "run", checkpoint, checkpoint / ""}) {
    const auto whole = run("verify", path);
    INFO(path << whole.output << whole.errors);
    CHECK(whole.status == 0);
    CHECK_THAT(whole.output, ContainsSubstring("verified"));
  }
  auto bytes = test::read_file(checkpoint / "model.safetensors");
  bytes.back() ^= 1;
  test::write_file(checkpoint / "model.safetensors", bytes);
  CHECK(run("inspect", folder_ / "run").status == 0);
  const auto listed = run("verify", folder_ / "run");
  CHECK(listed.status == 1);
  CHECK_THAT(listed.output,
             ContainsSubstring("step 7: DAMAGED: ") && ContainsSubstring("the bytes of model.safetensors"));
  const auto alone = run("verify", checkpoint);
  CHECK(alone.status == 1);
  CHECK_THAT(alone.errors, ContainsSubstring("the bytes of model.safetensors"));
  const auto file = run("verify", put("w.safetensors", tensors("w")));
  CHECK(file.status == 0);
  CHECK_THAT(file.output, ContainsSubstring("structure only: it has no checksums"));
}

TEST_CASE_METHOD(Tool, "Tool: a checkpoint without its manifest is damaged and no empty directory") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}});
  fs::remove(checkpoint / storage::kManifestName);
  for (const auto* command : {"inspect", "verify"}) {
    for (const auto& path : {checkpoint, checkpoint / ""}) {
      const auto result = run(command, path);
      INFO(path << result.output);
      CHECK(result.status == 1);
      CHECK_THAT(result.errors, ContainsSubstring("is damaged") && ContainsSubstring("MANIFEST.json"));
    }
  }
  CHECK_THAT(run("verify", folder_ / "run").output, ContainsSubstring("step 7: DAMAGED"));
}

TEST_CASE_METHOD(Tool, "Tool: a symbolic link that leads to itself is named, with what to do") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}});
  fs::remove(checkpoint / storage::kManifestName);
  fs::create_symlink(storage::kManifestName, checkpoint / storage::kManifestName);
  fs::create_symlink("loop", folder_ / "loop");
  for (const auto* command : {"inspect", "verify"}) {
    for (const auto& path : {checkpoint, folder_ / "run", folder_ / "loop"}) {
      const auto result = run(command, path);
      const auto text = result.output + result.errors;
      INFO(text);
      CHECK(result.status == 1);
      CHECK_THAT(text, ContainsSubstring(path == folder_ / "loop" ? path : checkpoint / storage::kManifestName) &&
                           ContainsSubstring("replace the symbolic link"));
      CHECK_THAT(text, !ContainsSubstring("filesystem error"));
    }
  }
}

TEST_CASE_METHOD(Tool, "Tool: verify of a directory refuses what verify of the checkpoint in it refuses") {
  const auto check = [&](const std::string& file, const std::string& content, const std::string& message) {
    const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}, {file, content}}, {}, 1);
    for (const auto& path : {checkpoint, folder_ / "run"}) {
      const auto result = run("verify", path);
      INFO(path << result.output << result.errors);
      CHECK(result.status == 1);
      CHECK_THAT(result.output + result.errors, ContainsSubstring(message));
    }
    fs::remove_all(folder_ / "run");
  };
  check("optim.safetensors", "\x08\0\0\0\0\0\0\0[[[[[[[["s, "optim.safetensors is not a valid safetensors file");
  check("ranks.safetensors", tensors("rank.1.rng.cpu"), "rank.1.rng.cpu");
  check("model-00002-of-00001.safetensors", tensors("w"), "lists model-00002-of-00001.safetensors, which is not");
}

TEST_CASE_METHOD(Tool, "Tool: verify refuses a checkpoint under the name of another step") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}});
  fs::rename(checkpoint, folder_ / "run" / storage::folder_name(8));
  for (const auto& path : {folder_ / "run" / storage::folder_name(8), folder_ / "run"}) {
    const auto result = run("verify", path);
    CHECK(result.status == 1);
    CHECK_THAT(result.output + result.errors, ContainsSubstring("its manifest belongs to step 7"));
  }
  fs::rename(folder_ / "run" / storage::folder_name(8), folder_ / "best");
  CHECK(run("verify", folder_ / "best").status == 0);
}

TEST_CASE_METHOD(Tool, "Tool: a directory without checkpoints is none that was verified, listed or converted") {
  const auto* kind = GENERATE("empty", "of other things", "of what was never committed");
  const auto directory = folder_ / kind;
  fs::create_directories(directory);
  if (kind == "of other things"s) test::write_file(directory / "data.bin", "x");
  if (kind == "of what was never committed"s) {
    const auto staged = directory / (storage::folder_name(3) + ".tmp-0123456789abcdef");
    fs::create_directory(staged);
    test::write_file(staged / "model.safetensors", tensors("w"));
  }
  for (const auto* command : {"inspect", "verify"}) {
    const auto result = run(command, directory);
    INFO(command << " " << kind);
    CHECK(result.status == 1);
    CHECK(result.errors == "ddprun-checkpoint: " + directory.string() + " holds no checkpoints\n");
    CHECK(result.output.empty());
  }
  const auto target = folder_ / "x.pt";
  CHECK(run({"convert", directory, target}).status == 1);
  CHECK_FALSE(fs::exists(target));
}

TEST_CASE_METHOD(Tool, "Tool: convert takes one checkpoint, and says so of a directory of them") {
  save(7, {{"model.safetensors", tensors("w")}});
  const auto result = run({"convert", folder_ / "run", folder_ / "x.pt"});
  CHECK(result.status == 1);
  CHECK(result.errors ==
        "ddprun-checkpoint: " + (folder_ / "run").string() + " is not a checkpoint; name one of its step-… folders\n");
}

TEST_CASE_METHOD(Tool, "Tool: a list that could not be written is not a success") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")}});
  for (const std::vector<std::string>& words : {std::vector<std::string>{"inspect", checkpoint.string()},
                                                {"inspect", (folder_ / "run").string()},
                                                {"verify", checkpoint.string()},
                                                {"--help"}}) {
    std::vector<std::string> arguments{"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full", TOOL};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const auto result = test::ChildProcess({.arguments = std::move(arguments)}).wait(std::chrono::seconds(60));
    INFO(words.front());
    CHECK(result.status == 1);
    CHECK_THAT(result.errors, ContainsSubstring("standard output cannot be written"));
  }
}

TEST_CASE_METHOD(Tool, "Tool: names, values and metadata of a file reach the terminal without its commands") {
  const std::string evil = "\x1b]0;title\a\x1b[2J\xc2\x9b\x7f\r\xff";
  const auto json = "{\"a\": 1,\n \"" + evil + "\": \"" + evil + "\"}\n";
  const auto checkpoint =
      save(1, {{"model.safetensors", tensors("w\x1b[2J", {{"k\x1b", "v\a"}})}, {"trainer.json", json}});
  const auto folder = run("inspect", checkpoint);
  CHECK(folder.status == 0);
  CHECK(is_clean(folder.output));
  CHECK_THAT(folder.output, ContainsSubstring("values: {\"a\": 1,\n \"\\x1b]0;title\\x07"));
  CHECK_THAT(folder.output, ContainsSubstring("w\\x1b[2J  float32 [2, 1]"));
  // A .pt file names its optimizers, too.
  test::TextSink sink;
  pt::write_pt(sink,
               {.model = {{.name = "w", .dtype = "float32", .sizes = {2}, .bytes = "12345678"}},
                .optimizers = {{evil, {.groups = R"({"type":"SGD","param_groups":[{"lr":0.5,"params":["w"]}]})"}}}});
  const auto pt = run("inspect", put("evil.pt", sink.text));
  INFO(pt.output << pt.errors);
  CHECK(pt.status == 0);
  CHECK(is_clean(pt.output));
  CHECK_THAT(pt.output, ContainsSubstring("optim-\\x1b]0;title"));
}

TEST_CASE_METHOD(Tool,
                 "Tool: convert names what it leaves out, writes the whole file or nothing, and keeps what was there") {
  pt::Pickler pickler;
  pickler.begin_dict();
  pickler.text("w");
  pickler.tensor({.storage = "0", .dtype = "float32", .sizes = {2}, .strides = {1}}, 2);
  pickler.text("both");
  pickler.begin_list();
  pickler.tensor({.storage = "0", .dtype = "float32", .sizes = {2}, .strides = {1}}, 2);
  pickler.end_list();
  pickler.end_dict();
  const auto source =
      put("a.pt",
          test::archive({{.name = "a/data.pkl", .data = pickler.take()}, {.name = "a/data/0", .data = "12345678"}}));
  const auto target = put("b.safetensors", "what was there");
  const auto result = run({"convert", source, target});
  CHECK(result.status == 0);
  CHECK(result.errors == "ddprun-checkpoint: skipped both: a list or tuple; only tensors in dicts have names\n");
  CHECK_THAT(run("inspect", target).output, ContainsSubstring("1 tensors, 8 bytes\n  w  float32 [2]\n"));
  test::write_file(target, "what was there");
  const auto complex = put("c.pt", test::archive({{.name = "a/data.pkl",
                                                   .data =
                                                       [] {
                                                         pt::Pickler one;
                                                         one.begin_dict();
                                                         one.text("w");
                                                         one.tensor({.storage = "0", .dtype = "complex128"}, 1);
                                                         one.end_dict();
                                                         return one.take();
                                                       }()},
                                                  {.name = "a/data/0", .data = "0123456789abcdef"}}));
  const auto refused = run({"convert", complex, target});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.errors, ContainsSubstring("no dtype for complex128 (tensor 'w')"));
  CHECK(test::read_file(target) == "what was there");
  CHECK_THAT(run({"convert", source, folder_ / "b.npz"}).errors,
             ContainsSubstring("must end in .pt, .pth or .safetensors"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
  CHECK(names.size() == 3);
}

TEST_CASE_METHOD(Tool, "Tool: convert says on standard error what the target's form does not hold") {
  const auto checkpoint = save(7, {{"model.safetensors", tensors("w")},
                                   {"ranks.safetensors", tensors("rank.0.rng.cpu")},
                                   {"sampler.state", R"({"epoch": 1})"},
                                   {"trainer.json", R"({"best\u001b": 1})"}});
  const auto whole = run({"convert", checkpoint, folder_ / "a.safetensors"});
  CHECK(whole.status == 0);
  CHECK(whole.output.empty());
  CHECK(whole.errors ==
        "ddprun-checkpoint: left out objects, which need a .pt file (1): sampler\n"
        "ddprun-checkpoint: left out states of ranks, which need a .pt file (1): rank.0.rng.cpu\n"
        "ddprun-checkpoint: left out values, which need a .pt file (3): step, best\\x1b, world_size\n");
  for (const auto& words : {std::vector<std::string>{"convert", checkpoint, folder_ / "b.pt"},
                            {"convert", checkpoint, folder_ / "c.safetensors", "--weights-only"}}) {
    const auto result = run(words);
    CHECK(result.status == 0);
    CHECK(result.errors.empty());
  }
}

}  // namespace
}  // namespace ddp
