"""The table of rules for requests about users, rights, quotas and certificates, by request. Called
by `controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.controller.security.acl_changes import create_acls, delete_acls
from plimsoll_core.controller.security.declared_users import (
    declare_authorization,
    declare_user,
    user_object_gone,
    user_object_seen,
)
from plimsoll_core.controller.security.inside_modes import allow_certificates, set_inside_mode
from plimsoll_core.controller.security.quota_changes import alter_quotas, declare_quotas
from plimsoll_core.controller.security.scram_changes import alter_scram
from plimsoll_core.controller.security.trusted_issuers import (
    declare_client_authorities,
    declare_token_issuers,
)
from plimsoll_core.messages import security as s
from plimsoll_core.messages.brokers import AllowCertificates, SetInsideMode

RULES: Mapping[type, Rule] = {
    s.CreateAcls: create_acls,
    s.DeleteAcls: delete_acls,
    s.AlterScramCredentials: alter_scram,
    s.AlterQuotas: alter_quotas,
    s.DeclareQuotas: declare_quotas,
    s.DeclareAuthorization: declare_authorization,
    s.DeclareTokenIssuers: declare_token_issuers,
    s.DeclareClientAuthorities: declare_client_authorities,
    s.DeclareUser: declare_user,
    s.UserObjectSeen: user_object_seen,
    s.UserObjectGone: user_object_gone,
    SetInsideMode: set_inside_mode,
    AllowCertificates: allow_certificates,
}
