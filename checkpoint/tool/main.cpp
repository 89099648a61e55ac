// ddprun-checkpoint: shows, verifies and converts checkpoints. No LibTorch, so it starts at once.
#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/joined.h"
#include "base/tool_status.h"
#include "checkpoint/core/printable_text.h"
#include "checkpoint/core/sharded_index.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/tool/convert.h"
#include "checkpoint/tool/tensor_source.h"

namespace {

using namespace ddp::tool_status;
using ddp::tool::TensorSource;

bool is_written() {
  return output_is_written("ddprun-checkpoint");
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  return "[" + ddp::detail::joined(sizes) + "]";
}

// Names come from files: control characters must not reach the terminal.
std::string printable(const std::string& name) {
  const auto quoted = ddp::safetensors::quote_name(name);
  return quoted.substr(1, quoted.size() - 2);
}

std::string ranks_text(int count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

// A folder with a checkpoint's name is a checkpoint, even if its manifest is missing.
bool is_directory_of_checkpoints(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored) || ddp::storage::is_there(path / ddp::storage::kManifestName)) {
    return false;
  }
  const auto name = (path / "").lexically_normal().parent_path().filename().string();
  if (ddp::storage::step_of(name)) return false;
  if (!ddp::find_model_in_folder(path) && !ddp::dcp::is_dcp_folder(path) && !ddp::is_folder_of_shards(path)) {
    return true;
  }
  ddp::storage::FileSystem file_system;
  return !ddp::storage::list_checkpoints(file_system, path).empty();
}

// Whether a writer has removed or replaced the checkpoint since it was listed.
bool was_removed_or_replaced(ddp::storage::FileSystem& file_system, const ddp::storage::CheckpointEntry& entry) {
  try {
    if (ddp::storage::read_manifest_only(file_system, entry.folder).sequence != entry.manifest.sequence) return true;
  } catch (const ddp::storage::DamagedCheckpoint&) {
    // The folder may have been removed.
  }
  return !ddp::storage::is_there(entry.folder);
}

// The damage of a checkpoint. For a sharded one it names the rank and a tensor, if they are known.
std::string damage_text(ddp::storage::FileSystem& file_system, const ddp::storage::CheckpointEntry& entry,
                        const std::string& text) {
  if (!ddp::has_shards(entry.manifest)) return text;
  try {
    ddp::open_sharded_checkpoint(file_system, entry.folder, entry.manifest);
    return text;
  } catch (const std::exception& error) {
    return error.what();
  }
}

// What is wrong with the content of a checkpoint; verify() of its folder finds the same. Throws std::system_error for a
// shortage.
ddp::storage::Failure content_failure(ddp::storage::FileSystem& file_system,
                                      const ddp::storage::CheckpointEntry& entry) {
  try {
    // It names the tensors in damaged bytes, which the headers alone do not tell.
    if (ddp::has_shards(entry.manifest)) ddp::verify_sharded_checkpoint(file_system, entry.folder, entry.manifest);
    TensorSource(entry.folder).check_manifest();
    return {};
  } catch (const ddp::storage::DamagedCheckpoint& error) {
    return ddp::storage::failure_from(error);
  } catch (const std::system_error& error) {
    if (ddp::storage::is_resource_shortage(error.code())) throw;
    return {.kind = ddp::storage::FailureKind::kUnreadable, .text = error.what()};
  } catch (const std::runtime_error& error) {
    return {.kind = ddp::storage::FailureKind::kDamaged, .text = error.what()};
  }
}

enum class Found { kGood, kDamaged, kGone };

Found list_entry(ddp::storage::FileSystem& file_system, const ddp::storage::CheckpointEntry& entry, bool verify) {
  auto failure = entry.failure;
  if (!failure && verify) failure = content_failure(file_system, entry);
  std::printf("step %" PRId64 ": ", entry.step);
  if (failure && was_removed_or_replaced(file_system, entry)) {
    std::printf("removed or replaced while it was being read\n");
    return Found::kGone;
  }
  if (failure) {
    const bool is_unreadable = failure.kind == ddp::storage::FailureKind::kUnreadable;
    std::printf("%s: %s\n", is_unreadable ? "UNREADABLE" : "DAMAGED",
                ddp::printable_text(damage_text(file_system, entry, failure.text)).c_str());
    return Found::kDamaged;
  }
  uint64_t bytes = 0;
  for (const auto& [name, record] : entry.manifest.files) bytes += record.size;
  std::printf("%" PRIu64 " bytes, %s", bytes, ranks_text(entry.manifest.world_size).c_str());
  for (const auto& [name, value] : entry.manifest.metrics) std::printf(", %s %g", printable(name).c_str(), value);
  std::printf("%s\n", verify ? ", verified" : "");
  return Found::kGood;
}

// Prints one line per checkpoint, and returns whether all are intact. If a writer removes all of them during that,
// lists again.
bool list(const std::filesystem::path& directory, bool verify) {
  constexpr int kMaxListings = 100;
  ddp::storage::FileSystem file_system;
  for (int listing = 0; listing < kMaxListings; ++listing) {
    const auto found = ddp::storage::list_checkpoints(file_system, directory);
    // A user who names the wrong directory must not believe that its content is good.
    if (found.empty()) {
      const auto what = ddp::describe_unsupported_folder(directory);
      throw std::runtime_error(printable(directory) + " holds no checkpoints" + (what.empty() ? "" : ": " + what));
    }
    bool all_gone = true;
    bool all_good = true;
    for (const auto& entry : found) {
      const auto state = list_entry(file_system, entry, verify);
      all_gone = all_gone && state == Found::kGone;
      all_good = all_good && state != Found::kDamaged;
    }
    if (!all_gone) return all_good;
  }
  throw std::runtime_error("every checkpoint of " + printable(directory) +
                           " was removed or replaced while it was read; try again");
}

// Names the parts of a source that are not in the target.
void name_left_out(const TensorSource& source, const ddp::tool::LeftOut& left_out) {
  for (const auto& [name, file] : source.files()) {
    for (const auto& [key, what] : file.skipped) {
      std::fprintf(stderr, "ddprun-checkpoint: skipped %s: %s\n", printable(key).c_str(), printable(what).c_str());
    }
  }
  for (const auto& line : ddp::tool::describe(left_out)) {
    std::fprintf(stderr, "ddprun-checkpoint: left out %s\n", line.c_str());
  }
}

void inspect(const std::filesystem::path& path) {
  const TensorSource source(path);
  std::printf("%s: %s", path.c_str(), source.kind());
  if (const auto* manifest = source.manifest()) {
    std::printf(" of step %" PRId64 ", saved by %s", manifest->step, ranks_text(manifest->world_size).c_str());
    for (const auto& [name, value] : manifest->metrics) std::printf(", %s %g", printable(name).c_str(), value);
  }
  std::printf("\n");
  for (const auto& [name, file] : source.files()) {
    uint64_t bytes = 0;
    for (const auto& tensor : file.tensors) bytes += tensor.size();
    std::printf("%s%s%zu tensors, %" PRIu64 " bytes\n", printable(name).c_str(), name.empty() ? "" : ": ",
                file.tensors.size(), bytes);
    for (const auto& tensor : file.tensors) {
      std::printf("  %s  %s %s\n", printable(tensor.name).c_str(), tensor.dtype.c_str(),
                  shape_text(tensor.sizes).c_str());
    }
    for (const auto& [key, what] : file.skipped) {
      std::printf("  %s  not read: %s\n", printable(key).c_str(), printable(what).c_str());
    }
    for (const auto& [key, value] : file.metadata) {
      std::printf("  metadata %s: %s\n", printable(key).c_str(), printable(value).c_str());
    }
  }
  if (!source.values().empty()) std::printf("values: %s", ddp::printable_text(source.values(), "\n").c_str());
}

// Says which parts have no checksum; empty if all have one.
const char* not_compared(const TensorSource& source, const std::filesystem::path& path) {
  if (!source.has_checksums()) return " (structure only: it has no checksums)";
  return ddp::dcp::is_dcp_folder(path) ? " (its items: .metadata has no checksum)" : "";
}

void verify(const std::filesystem::path& path) {
  TensorSource source(path);
  source.verify();
  std::printf("%s: %s, verified%s\n", path.c_str(), source.kind(), not_compared(source, path));
}

struct Command {
  std::string path{};
  std::string target{};
  std::string key{};
  ddp::tool::ConvertOptions options{};
};

CLI::App* add_convert(CLI::App& app, Command& command) {
  using ddp::tool::TargetForm;
  static const std::map<std::string, TargetForm> kForms{
      {"safetensors", TargetForm::kHuggingFace}, {"dcp", TargetForm::kDcp}, {"checkpoint", TargetForm::kCheckpoint}};
  auto* convert = app.add_subcommand("convert", "Write TARGET: .pt, .pth or .safetensors; see --to");
  convert->add_option("PATH", command.path, "A folder of a checkpoint, or a file")->required();
  convert->add_option("TARGET", command.target, "The file or the new folder to write")->required();
  convert->add_option("--to", command.options.to, "Folder: safetensors, dcp (flat), checkpoint")
      ->option_text("FORM")
      ->transform(CLI::Transformer(kForms));
  convert->add_option("--max-file-size", command.options.max_file_size, "With --to safetensors: 5GB")
      ->option_text("SIZE")
      ->transform(CLI::AsSizeValue(true));
  convert->add_flag("--weights-only", command.options.weights_only, "The model's tensors alone");
  convert->add_option("--key", command.key, "The entry with the weights, e.g. state.ema");
  return convert;
}

void convert(const Command& command, bool is_directory) {
  if (is_directory) {
    const auto what = ddp::describe_unsupported_folder(command.path);
    throw std::runtime_error(printable(command.path) + " is not a checkpoint" +
                             (what.empty() ? "; name one of its step-… folders" : ": " + what));
  }
  const TensorSource source(command.path, command.key);
  name_left_out(source, ddp::tool::convert(source, command.target, command.options));
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Shows, verifies and converts checkpoints: folders, .safetensors and .pt files.");
  app.require_subcommand(1);
  Command command;
  auto* inspect_command = app.add_subcommand("inspect", "List checkpoints, or the tensors of one");
  inspect_command->alias("list");
  auto* verify_command = app.add_subcommand("verify", "Compare every byte with its checksum (1: damage)");
  for (auto* each : {inspect_command, verify_command}) {
    each->add_option("PATH", command.path, "A folder of checkpoints or of one, or a file")->required();
  }
  const auto* convert_command = add_convert(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kMisused;
    return is_written() ? kGood : kFailed;
  }
  const bool is_directory = is_directory_of_checkpoints(command.path);
  bool is_good = true;
  if (convert_command->parsed()) {
    convert(command, is_directory);
  } else if (is_directory) {
    is_good = list(command.path, verify_command->parsed());
  } else if (inspect_command->parsed()) {
    inspect(command.path);
  } else {
    verify(command.path);
  }
  return is_written() && is_good ? kGood : kFailed;
} catch (const std::exception& error) {
  is_written();  // what is known so far comes first
  std::fprintf(stderr, "ddprun-checkpoint: %s\n", error.what());
  return kFailed;
}
