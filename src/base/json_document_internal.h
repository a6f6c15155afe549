// json_document_internal.h - a JSON text as a tree, read without recursion and without mercy: a key
// that comes twice and a depth that no format of ours has are errors, not surprises.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace passel {

/// Nesting that any document of ours may have, with room for unknown keys.
inline constexpr std::size_t kMaxJsonDepth = 16;

/// The tree of `text`. `what` names the document in messages ("TF_CONFIG"), `depth_needed` is what
/// its format takes. The caller has limited the size.
/// Errors: kInvalidArgument: not JSON, with the byte; a key twice in one object; too deep.
Result<nlohmann::json> ParseJsonDocument(std::string_view what, std::string_view text,
                                         int depth_needed);

}  // namespace passel
