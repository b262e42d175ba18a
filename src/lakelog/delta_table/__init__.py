"""``LakeTable`` and its builders: tables under the names, arguments and answers that Delta's users know."""
